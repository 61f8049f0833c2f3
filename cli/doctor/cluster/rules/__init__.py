"""Rules: each looks at the facts and gives findings. They ask nobody, so a test needs no cluster."""
