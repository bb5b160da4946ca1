"""No deadlines: how long an example takes says nothing about whether it is right."""

from hypothesis import settings

settings.register_profile("airlock", deadline=None)
settings.load_profile("airlock")
