"""Training of a small language model of `transformers`. Its processor bounds it: the GPU is busy about half of the time."""
from protocol import Page

page = Page()
import torch
from models import train
from transformers import GPT2Config, GPT2LMHeadModel

BATCH, LENGTH = 8, 128


def main():
    config = GPT2Config(n_layer=6, n_embd=384, n_head=6, n_positions=LENGTH, attn_implementation="eager", use_cache=False)
    model = GPT2LMHeadModel(config).cuda().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text = torch.randint(0, config.vocab_size, (BATCH, LENGTH), device="cuda")
    train(page, lambda: model(input_ids=text, labels=text).loss, optimiser)


if __name__ == "__main__":
    main()
