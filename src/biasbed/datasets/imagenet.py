"""ImageNet and the sets that share its classes: stylized, distorted, natural adversarial examples and renditions.

All are class folders named by WordNet id; a label is the id's position in the sorted list.
"""

from __future__ import annotations

from biasbed.datasets.base import DataSet
from biasbed.datasets.classes import imagenet_classes

_NON_COMMERCIAL = "ImageNet's: non-commercial research"
_KAGGLE = ("imagenet/ILSVRC/Data/CLS-LOC", "ILSVRC/Data/CLS-LOC")
_ROOTS = ("imagenet", "imagenet-1k", "ILSVRC2012", "ILSVRC", "imagenet2012", *_KAGGLE)
TRAIN, VAL = 1_281_167, 50_000  # Russakovsky et al. 2015, table 2


def _in(roots: tuple[str, ...], split: str) -> tuple[str, ...]:
    return tuple(f"{root}/{split}" for root in roots)


class WordNetFolders(DataSet):
    """Class folders named by WordNet id."""

    subset = ""  # of ImageNet's classes: "a", "r" or all
    kind = "class folders by WordNet id"
    licence = _NON_COMMERCIAL

    @property
    def classes(self) -> tuple[str, ...]:
        return imagenet_classes(self.subset)


class ImageNet(WordNetFolders):
    """The validation images of ILSVRC 2012 (Russakovsky et al. 2015)."""

    name = "imagenet"
    images = VAL
    places = (*_in(_ROOTS, "val"), "val", "ILSVRC2012_img_val")
    archives = ("ILSVRC2012_img_val.tar",)
    source = "https://image-net.org/download.php, then valprep.sh"

    def flat_hint(self) -> str:
        return "the usual script valprep.sh sorts them into one folder per class, named by WordNet id"


class ImageNetTrain(WordNetFolders):
    """The training images of ILSVRC 2012."""

    name = "imagenet_train"
    images = TRAIN
    places = (*_in(_ROOTS, "train"), "train", "ILSVRC2012_img_train")
    archives = ("ILSVRC2012_img_train.tar", "n01440764.tar")  # one archive of an archive per class
    source = "https://image-net.org/download.php"


_STYLIZED_ROOTS = ("stylized-imagenet", "SIN", "imagenet-stylized")


class StylizedImageNet(WordNetFolders):
    """ImageNet's validation images in the styles of paintings (Geirhos et al. 2019), 224 x 224 pixels."""

    name = "stylized_imagenet"
    images = VAL
    places = (*_in(_STYLIZED_ROOTS, "val"), *_STYLIZED_ROOTS[:2])
    licence = "unclear: ImageNet's and the paintings'; can't be passed on"
    source = "made from ImageNet: https://github.com/rgeirhos/Stylized-ImageNet"


class StylizedImageNetTrain(WordNetFolders):
    """ImageNet's training images in the styles of paintings (Geirhos et al. 2019)."""

    name = "stylized_imagenet_train"
    images = TRAIN
    places = _in(_STYLIZED_ROOTS, "train")
    licence = StylizedImageNet.licence
    source = StylizedImageNet.source


class ImageNetA(WordNetFolders):
    """Natural adversarial examples (Hendrycks et al. 2021)."""

    name = "imagenet_a"
    images = 7_500
    subset = "a"
    places = ("imagenet-a", "imagenet-a/imagenet-a", "imagenet/imagenet-a")
    archives = ("imagenet-a.tar",)
    licence = "unclear: images from the web, repository MIT"
    source = "https://people.eecs.berkeley.edu/~hendrycks/imagenet-a.tar"


class ImageNetR(WordNetFolders):
    """Renditions: art, cartoons, toys, ... (Hendrycks et al. 2021)."""

    name = "imagenet_r"
    images = 30_000
    subset = "r"
    places = ("imagenet-r", "imagenet-r/imagenet-r", "imagenet/imagenet-r")
    archives = ("imagenet-r.tar",)
    licence = "unclear: images from the web, repository MIT"
    source = "https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar"


class CAECopies(WordNetFolders):
    """ImageNet's validation images distorted by DeepAugment's autoencoder (Hendrycks et al. 2021, section 4)."""

    name = "deepaug_cae"
    images = VAL
    places = ("deepaug_cae/val", "deepaug_cae", "DeepAugment/CAE/val", "CAE/val")
    source = "made from ImageNet's val: https://github.com/hendrycks/imagenet-r, DeepAugment"


class DeepAugCAETrain(WordNetFolders):
    """ImageNet's training images distorted by DeepAugment's autoencoder: what its authors published."""

    name = "deepaug_cae_train"
    images = TRAIN
    places = (*_in(("deepaug_cae", "DeepAugment/CAE", "CAE"), "train"), "DeepAugment/CAE", "CAE")
    archives = ("CAE.tar", "CAE.tar.gz", "CAE.zip")
    source = "https://github.com/hendrycks/imagenet-r, DeepAugment"


class EDSRCopies(WordNetFolders):
    """ImageNet's validation images distorted by DeepAugment's super-resolution network."""

    name = "deepaug_edsr"
    images = VAL
    places = ("deepaug_edsr/val", "deepaug_edsr", "DeepAugment/EDSR/val", "EDSR/val")
    source = CAECopies.source


class DeepAugEDSRTrain(WordNetFolders):
    """ImageNet's training images distorted by DeepAugment's super-resolution network: what its authors published."""

    name = "deepaug_edsr_train"
    images = TRAIN
    places = (*_in(("deepaug_edsr", "DeepAugment/EDSR", "EDSR"), "train"), "DeepAugment/EDSR", "EDSR")
    archives = ("EDSR.tar", "EDSR.tar.gz", "EDSR.zip")
    source = DeepAugCAETrain.source
