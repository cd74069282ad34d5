"""Labs, played as their handouts say."""
