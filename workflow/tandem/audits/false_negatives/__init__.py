"""Passages that answer a query but are not labelled: pooled from several systems, ranked, shown to annotators.

DuReader-retrieval §2.3 and A.1: the union of five systems' top 50 is ranked by the mean of four cross-encoders, the top
5 are labelled by people, and the labels found so are added to the judgements.
"""
