"""What the notebooks look at: wrong results, how score distributions approach each other, how hard negatives are."""
