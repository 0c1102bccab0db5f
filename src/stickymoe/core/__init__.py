"""What every room stands on: the error tree, checks of settings, files written whole or not at all."""
