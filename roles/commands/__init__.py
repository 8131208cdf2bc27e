"""The commands of people and lanes; each file is one group of them."""
