"""Register the card that is written into the folders of a trained model."""

from tandem.stages.training import PART_NOTES

PART_NOTES["card"] = "contrib.cards.card:write_card"
