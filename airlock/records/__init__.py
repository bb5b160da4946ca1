"""How records are described and read: schemas, their drafts, raw tables, splits.

Pure, and used on both sides of the wall.
"""
