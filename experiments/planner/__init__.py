"""What `experiments.plan` is made of: programs, the compiler's word, a roofline."""
