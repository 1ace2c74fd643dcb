"""Ensembles (`ensembles:`): several cross-encoders under one name, and the stages of cross-encoders that judge."""

from typing import TYPE_CHECKING

from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.origins import NAME
from tandem.planning.runs import CROSS_PARTS

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver


class Ensembles:
    """The ensembles of one configuration."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.told = resolver, resolver.config["ensembles"]

    def members(self, names: list[str]) -> list[str]:
        """Names with each ensemble replaced by the cross-encoders that it is made of."""
        return [member for name in names for member in (self.told[name]["of"] if name in self.told else [name])]

    def judges(self, names: list[str], where: str, dataset: str) -> dict[str, Stage]:
        """Cross-encoders and the token ids that each reads, by role: `judge.0` with `judge_tokens.0`, ….

        Args:
            names: models or ensembles.
            where: the key that asked for them.
            dataset: whose queries and passages they read.
        """
        made = {}
        for i, name in enumerate(self.members(names)):
            made[f"judge.{i}"] = self.of.model(name, where, CROSS_PARTS)
            made[f"judge_tokens.{i}"] = self.of.tokens(self.of.root(self.of.named(name), "cross"), dataset)
        return made

    def check(self, name: str) -> None:
        """Refuse an entry of which a member is no cross-encoder, or that has a model's name, wanted or not."""
        at = f"ensembles.{name}"
        if not NAME.fullmatch(name):
            raise UserError(f"{at}: a name is letters, digits, '_', '-' and '.'")
        if self.of.named(name) in self.of.config["models"]:
            raise UserError(f"{at} has the name of a model; name it otherwise")
        for member in self.told[name]["of"]:
            if member in self.told:
                raise UserError(f"{at}.of: {member} is an ensemble itself; name its cross-encoders")
            self.of.model(member, f"{at}.of", CROSS_PARTS)
