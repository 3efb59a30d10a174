"""Shared parts of the judges: results, programs, scratch file systems, mounts."""
