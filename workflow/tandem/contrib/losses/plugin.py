"""Which of the losses read a teacher's order alone; the losses themselves are registered where they are written."""

from tandem.config.losses import register_order_losses

register_order_losses("hinge", "ranknet", "lambdarank", "lambda_mrr")
