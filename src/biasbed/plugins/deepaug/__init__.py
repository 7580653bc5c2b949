"""DeepAugment's images (Hendrycks et al., ICCV 2021): `prepare what=deepaug_cae` and `what=deepaug_edsr`."""

from __future__ import annotations

OFFERS = {
    "network": {"cae": "biasbed.plugins.deepaug.cae:CAE", "edsr": "biasbed.plugins.deepaug.edsr:EDSR"},
    "what": {
        "cae_network": "biasbed.plugins.deepaug.cae_network:CAENetwork",
        "edsr_network": "biasbed.plugins.deepaug.edsr_network:EDSRNetwork",
        "deepaug_cae": "biasbed.plugins.deepaug.images:CAEImages",
        "deepaug_edsr": "biasbed.plugins.deepaug.images:EDSRImages",
    },
}
