"""Training queries that are similar to queries of the other splits, which lets a model memorise what it is tested on.

DuReader-retrieval §2.3: candidate pairs are proposed by vectors or words, a judge decides (similar above 0.5).
"""
