"""Text generators: trained on a collection's own pairs, or published; their texts, and scores of these.

doc2query (Nogueira et al. 2019) and docT5query (Nogueira and Lin 2019) append generated queries to passages,
Doc2Query-- (Gospodinov et al. 2023) drops the worst of them, InPars (Bonifacio et al. 2022) trains on them, and GAR
(Mao et al. 2021) appends to a query what a generator writes for it.
"""
