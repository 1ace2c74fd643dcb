"""Plan the stages of encoders with source `characters`."""

from tandem.contrib.characters.options import CharacterEncoder, CharacterInput
from tandem.plan.context import Context, json_of, plans_encoder, plans_tokenizer
from tandem.plan.graph import Stage
from tandem.plan.starting_encoders import encoder


@plans_encoder("characters")
def plan_character_encoder(ctx: Context, name: str, entry: CharacterEncoder) -> Stage:
    """Return the stage that puts an input of characters below the layers of another encoder."""
    with ctx.opening("encoders", name):
        start = encoder(ctx, entry.start, f"encoders.{name}.start")
    imitation = json_of(entry.imitation) | {"seed": ctx.seed(entry.imitation.seed)}
    params = {**json_of(entry, *CharacterInput.model_fields), "imitation": imitation}
    return ctx.stage("character_encoder", start.dataset, name, params, {"start": start})


@plans_tokenizer("characters")
def plan_words(ctx: Context, name: str, entry: CharacterEncoder) -> Stage:
    """Return the stage of the encoder itself: it contains the tokenizer, which splits texts into words."""
    return encoder(ctx, name)
