"""Terms of a dual encoder's loss, and which losses read a teacher's order alone.

The losses themselves are registered where they are written.
"""

from tandem.config.losses import register_order_losses
from tandem.config.training import BATCH_TERMS

register_order_losses("hinge", "ranknet", "lambdarank", "lambda_mrr")
BATCH_TERMS["passage_centric"] = "contrib.losses.vector_terms:add_passage_centric"
BATCH_TERMS["regularise"] = "contrib.losses.vector_terms:add_regularisers"
