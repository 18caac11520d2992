"""Chooses training environments by coverage, redundancy and gradient conflict."""
