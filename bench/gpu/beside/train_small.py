"""Training of a small language model of `transformers`. Its processor bounds it: the GPU is busy about half of the time."""
from protocol import Page

page = Page()
import torch
from models import Behind
from transformers import GPT2Config, GPT2LMHeadModel

BATCH, LENGTH = 8, 128
# As a loop that logs does.
LOG = 10


def main():
    config = GPT2Config(n_layer=6, n_embd=384, n_head=6, n_positions=LENGTH, attn_implementation="eager", use_cache=False)
    model = GPT2LMHeadModel(config).cuda().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text = torch.randint(0, config.vocab_size, (BATCH, LENGTH), device="cuda")
    behind, number = Behind(page), 0

    def step(count=True):
        nonlocal number
        loss = model(input_ids=text, labels=text).loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if count:
            behind.launched()
        number += 1
        if number % LOG == 0:
            loss.item()

    for _ in range(5):
        step(count=False)
    page.run(step, behind.drain)


if __name__ == "__main__":
    main()
