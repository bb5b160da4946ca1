"""How the integers of the feature map `prior-1` are made: from generated images alone."""
