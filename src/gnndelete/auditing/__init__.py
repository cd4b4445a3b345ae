"""Measured evidence about one deletion: utility, forgetting, attacks, the gap to retraining, and a report that shows it."""

from __future__ import annotations

from gnndelete.auditing.entry import Audit, audit

__all__ = ["Audit", "audit"]
