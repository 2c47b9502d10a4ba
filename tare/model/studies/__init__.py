"""What a person asks for: the study, its arms, stacks and papers, how long it takes, its stamp."""
