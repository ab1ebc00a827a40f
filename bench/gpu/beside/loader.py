"""Training that its data bounds: 10 ms of the processor make a batch, which is copied, and a step of some 4 ms is waited for."""
from protocol import Page

page = Page()
import numpy
import torch
from models import blocks
from torch.nn import functional

BATCH, SIDE, PATCH, WIDTH, HEADS, LAYERS, CLASSES = 64, 128, 16, 512, 8, 6, 1000
ACROSS = SIDE // PATCH
# Of the images, made brighter.
GAMMA = numpy.float32(0.8)


class Vision(torch.nn.Module):
    """A small vision transformer."""

    def __init__(self):
        super().__init__()
        self.patches, self.blocks, self.head = torch.nn.Linear(3 * PATCH * PATCH, WIDTH), blocks(LAYERS, WIDTH, HEADS), torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        x = images.to(torch.bfloat16).view(BATCH, 3, ACROSS, PATCH, ACROSS, PATCH).permute(0, 2, 4, 1, 3, 5).reshape(BATCH, ACROSS * ACROSS, -1)
        return self.head(self.blocks(self.patches(x)).mean(1))


class Loader:
    """Images as they lie on a disk; each batch some of them, cut and turned at random."""

    def __init__(self):
        self.random = numpy.random.default_rng(1)
        self.images = self.random.integers(0, 256, (512, 3, SIDE + 16, SIDE + 16), dtype=numpy.uint8)
        self.labels = self.random.integers(0, CLASSES, 512)
        self.pinned = torch.empty(BATCH, 3, SIDE, SIDE).pin_memory()
        self.into = self.pinned.numpy()

    def batch(self):
        chosen = self.random.integers(0, len(self.images), BATCH)
        for place, which in enumerate(chosen):
            top, left = self.random.integers(0, 16, 2)
            image = self.images[which, :, top:top + SIDE, left:left + SIDE]
            if self.random.random() < 0.5:
                image = image[:, :, ::-1]
            cut = numpy.power(image.astype(numpy.float32) * (1 / 255), GAMMA)
            self.into[place] = (cut - cut.mean()) / (cut.std() + 1e-3)
        return self.pinned, torch.from_numpy(self.labels[chosen])


def main():
    with torch.device("cuda"):
        model = Vision().to(torch.bfloat16)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = Loader()

    def once():
        images, labels = loader.batch()
        found = model(images.cuda(non_blocking=True))
        loss = functional.cross_entropy(found.float(), labels.cuda())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        loss.item()

    page.run_each(once)


if __name__ == "__main__":
    main()
