"""What is wrong with a cluster that runs: `collect` reads it into `facts`, `rules` say what follows from them."""
