"""Register terms of a dual encoder's loss.

The losses themselves are registered where they are written.
"""

from tandem.config.training import BATCH_TERMS

BATCH_TERMS["passage_centric"] = "contrib.losses.vector_terms:add_passage_centric"
BATCH_TERMS["regularise"] = "contrib.losses.vector_terms:add_regularisers"
