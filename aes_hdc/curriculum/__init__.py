"""Orders difficulty: which harness and scale level a group is played at."""
