"""The command line, the stages and the experiments; the only floor that sees all."""
