"""Prompts for engines: made-up texts, the same every time, whose beginnings differ so that no two
share a block.

SPDX-License-Identifier: Apache-2.0
"""
import random

NOUNS = ("house river boat tree stone garden letter window bridge market winter captain teacher "
         "engine island mountain clock village road harbour lamp orchard").split()
VERBS = ("watches finds leaves carries follows remembers paints repairs crosses names builds "
         "counts forgets").split()
ADJECTIVES = ("small old red quiet distant broken green narrow early heavy careful bright "
              "hidden").split()


def story(seed, sentences):
    """So many sentences."""
    rng = random.Random(seed)
    text = []
    for _ in range(sentences):
        text.append(f"The {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} {rng.choice(VERBS)} the "
                    f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}.")
    return " ".join(text)


def chat(system, user):
    """As the model was taught conversations."""
    return (f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n"
            "<|im_start|>assistant\n")
