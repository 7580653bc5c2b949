"""Small excerpts of papers that print means, as the files that biasbed reads them from."""

from __future__ import annotations

from pathlib import Path

# Gulrajani and Lopez-Paz 2021, three of 14 methods and two of seven data sets; VLCS by two domains alone.
DOMAINS = """
citation: "Gulrajani, Lopez-Paz: In Search of Lost Domain Generalization. ICLR 2021 (an excerpt)"
suite: domains
training_sets: [pacs, vlcs]
rules:
  best_validation:
  leave_one_out: {rule: last}
spread: standard_error
ddof: 0
runs: 3
columns:
  pacs-art_painting: {block: pacs, domain: art_painting, aliases: [A]}
  pacs-cartoon: {block: pacs, domain: cartoon, aliases: [C]}
  pacs-photo: {block: pacs, domain: photo, aliases: [P]}
  pacs-sketch: {block: pacs, domain: sketch, aliases: [S]}
  vlcs-caltech: {block: vlcs, domain: caltech, aliases: [C]}
  vlcs-sun: {block: vlcs, domain: sun, aliases: [S]}
"""
DOMAINS_CSV = """selection,row,column,value,spread
best_validation,erm,pacs-art_painting,84.7,0.4
best_validation,erm,pacs-cartoon,80.8,0.6
best_validation,erm,pacs-photo,97.2,0.3
best_validation,erm,pacs-sketch,79.3,1.0
best_validation,erm,vlcs-caltech,97.7,0.4
best_validation,erm,vlcs-sun,73.4,0.5
best_validation,irm,pacs-art_painting,84.8,1.3
best_validation,irm,pacs-cartoon,76.4,1.1
best_validation,irm,pacs-photo,96.7,0.6
best_validation,irm,pacs-sketch,76.1,1.0
best_validation,irm,vlcs-caltech,98.6,0.1
best_validation,irm,vlcs-sun,73.4,0.6
best_validation,sagnet,pacs-art_painting,87.4,1.0
best_validation,sagnet,pacs-cartoon,80.7,0.6
best_validation,sagnet,pacs-photo,97.1,0.1
best_validation,sagnet,pacs-sketch,80.0,0.4
best_validation,sagnet,vlcs-caltech,97.9,0.4
best_validation,sagnet,vlcs-sun,71.4,1.3
leave_one_out,erm,pacs-art_painting,83.2,1.3
leave_one_out,erm,pacs-cartoon,76.8,1.7
leave_one_out,erm,pacs-photo,97.2,0.3
leave_one_out,erm,pacs-sketch,74.8,1.3
leave_one_out,erm,vlcs-caltech,98.0,0.4
leave_one_out,erm,vlcs-sun,70.8,1.9
"""

# Hendrycks et al. 2021, some cells of tables 1, 5 and 8: errors, their difference, mean corruption errors, accuracies.
SHIFTS = """
citation: "Hendrycks et al.: The Many Faces of Robustness. ICCV 2021 (an excerpt)"
suite: shifts
training_sets: [imagenet]
columns:
  imagenet_r: {complement: true, classes: 200, images: 30000}
  imagenet_a: {classes: 200, aliases: [natural_adversarial]}
  gap_r: {measure: lost_on_r, unit: points, higher_is_better: false}
  imagenet_c: {measure: mce, unit: "%", higher_is_better: false}
rows:
  deepaug: {algorithm: deepaug_cae, training_data: {imagenet: 0.5, deepaug_cae: 0.5}}
  deepaug_augmix: {}
"""
SHIFTS_CSV = """row,column,value
resnet50,imagenet_r,63.9
resnet50,imagenet_a,2.2
resnet50,gap_r,56.0
resnet50,imagenet_c,76.7
deepaug,imagenet_r,57.8
deepaug,gap_r,50.3
deepaug,imagenet_c,60
deepaug_augmix,imagenet_r,53.2
deepaug_augmix,imagenet_a,3.9
deepaug_augmix,gap_r,45.2
deepaug_augmix,imagenet_c,53.6
"""

# The unbiased accuracy of two methods on Colored MNIST of two severities (Choi et al.), as if it were an AC score.
SHADES = """
citation: "Unbiased accuracies of five runs (an excerpt)"
suite: toy
training_sets: [shades]
spread: standard_deviation
ddof: 1
columns:
  shades_1: {block: shades, measure: ac_score, unit: "%", higher_is_better: true}
  shades_hard: {block: shades, measure: ac_score, unit: "%", higher_is_better: true, aliases: [shades_5]}
"""
SHADES_CSV = """row,column,value,spread,n
erm,shades_1,49.87,0.73,5
erm,shades_hard,80.41,0.96,5
lff,shades_1,76.17,1.01,5
lff,shades_hard,86.27,0.75,5
"""


def write(folder: Path, name: str, description: str, numbers: str) -> None:
    (folder / f"{name}.yaml").write_text(description, encoding="utf-8")
    (folder / f"{name}.csv").write_text(numbers, encoding="utf-8")
