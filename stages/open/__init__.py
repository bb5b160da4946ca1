"""Room 3: releases in, models out; no record is ever here."""
