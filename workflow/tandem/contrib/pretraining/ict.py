"""The inverse cloze task (Lee, Chang & Toutanova 2019)."""

import numpy as np

from tandem.contrib.pretraining.masking import draw_spans, make_generator, select_tokens
from tandem.contrib.pretraining.objectives import Contrast
from tandem.contrib.pretraining.options import IctTrain
from tandem.models.ragged import Ragged, join_ranges, sum_lengths
from tandem.training.forward import Seeds


class Ict(Contrast):
    """-log( e^{s(q_i, d_i)} / Σ_j e^{s(q_i, d_j)} ): q_i is a span of passage i, and d_i the passage without it.

    The inverse cloze task of Lee, Chang and Toutanova (2019, Eq. 8). With `keep_probability` (10 %), the span stays in
    its passage, so that common words count, too. The batch's other passages, of all processes, are the negatives. In
    the paper, q is a sentence; here it is a random span, since texts are tokens without sentences. If the span is the
    whole passage, the passage stays whole.
    """

    train: IctTrain

    def pair(self, texts: Ragged, seeds: Seeds) -> tuple[Ragged, Ragged]:
        """Return a span of each text, and the text without it."""
        draw = make_generator(seeds)
        starts, sizes = draw_spans(texts, self.train, draw)
        whole = (draw.random(len(texts)) < self.train.keep_probability) | (
            sizes == np.diff(texts.offsets)
        )
        left = np.ones(len(texts.ids), bool)
        left[join_ranges(starts[~whole], sizes[~whole])] = False
        return Ragged(texts.ids[join_ranges(starts, sizes)], sum_lengths(sizes)), select_tokens(
            texts, left
        )
