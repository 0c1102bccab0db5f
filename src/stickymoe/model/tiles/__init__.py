"""Vocabulary projection and cross-entropy in the matrix units of x86 processors (AMX)."""
