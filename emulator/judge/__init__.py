"""The judge: invariants of a run, theory bounds, the verdict. Pure: numbers in, words out."""
