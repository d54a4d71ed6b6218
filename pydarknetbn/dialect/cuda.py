"""The batchnorms of the forks' CUDA kernels, computed on the CPU.

Sums run as in a block of 512 threads: thread p sums pixel p, p + 512, … of each image in turn, then one thread adds the 512 sums.
Everything is a float and rounded at each step, as with nvcc's `-fmad=false`: by default nvcc fuses products with sums, and last
bits differ. CUDA's powf is not rounded correctly, so two of them are computed otherwise: (x - mean)² is the product, and
(v + ε)^-1.5 is 1 / (w·√w) of w = v + ε. That is 2.42 units of the last place from the exact power at most and 0.43 on average; it
is 0 for w above 4.8e25. What a real GPU gives has never been compared: *source*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .batchnorms import ALEXEYAB_RULES, HANK_AI_RULES, PJREDDIE_RULES
from .rules import BatchNormRule, EpsilonRule, Host

__all__ = [
    "ALEXEYAB_CUDA_RULES",
    "ALEXEYAB_CUDA_SOURCES",
    "HANK_AI_CUDA_RULES",
    "HANK_AI_CUDA_SOURCES",
    "PJREDDIE_CUDA_RULES",
    "PJREDDIE_CUDA_SOURCES",
]


def _in_blocks(rule: BatchNormRule) -> BatchNormRule:
    """What all kernels have in common; folding is the CPU's code."""
    return replace(
        rule,
        forward=EpsilonRule(1e-5, "inside"),
        summation="strided",
        moments="quotient",
        squares="float",
        intermediate="float",
        inverse_cube="root",
        quotients="float",
        bias_gradient=True,
    )


def _pjreddie(rule: BatchNormRule) -> BatchNormRule:
    epsilon = EpsilonRule(1e-5, "inside")
    return replace(_in_blocks(rule), direct_term=epsilon, statistic_terms=epsilon, products="float")


def _alexeyab(host: Host, rule: BatchNormRule) -> BatchNormRule:
    """A connected layer adds the gradient of the biases before its batchnorm does: they get it twice."""
    return replace(
        _in_blocks(rule),
        direct_term=EpsilonRule(1e-6, "outside"),
        statistic_terms=EpsilonRule(1e-6, "inside"),
        normalize_variance="n",
        keep_variance="n",
        rolling_keep=0.99,
        rolling_add=0.01,
        products="double",
        host_bias_gradient=host == "connected",
        eval_statistics="rolling copied",
    )


PJREDDIE_CUDA_RULES: Mapping[Host, BatchNormRule] = MappingProxyType(
    {host: _pjreddie(rule) for host, rule in PJREDDIE_RULES.items()}
)
ALEXEYAB_CUDA_RULES: Mapping[Host, BatchNormRule] = MappingProxyType(
    {host: _alexeyab(host, rule) for host, rule in ALEXEYAB_RULES.items()}
)
HANK_AI_CUDA_RULES: Mapping[Host, BatchNormRule] = MappingProxyType(
    {host: _alexeyab(host, rule) for host, rule in HANK_AI_RULES.items()}
)

PJREDDIE_CUDA_SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "forward": "src/blas_kernels.cu:200",
        "direct_term": "src/blas_kernels.cu:209",
        "statistic_terms": "src/blas_kernels.cu:270,300",
        "summation": "src/blas_kernels.cu:30-108,245-303,501-558, BLOCK of include/darknet.h",
        "moments": "src/blas_kernels.cu:526,556",
        "squares": "src/blas_kernels.cu:545",
        "normalize_variance": "src/blas_kernels.cu:556",
        "products": "src/blas_kernels.cu:209,300: 2.f and -.5f",
        "rolling_keep": "src/batchnorm_layer.c:218-221",
        "eval_statistics": "src/batchnorm_layer.c:240-243, in a copy of the layer",
        "leaky": "src/activation_kernels.cu leaky_activate_kernel, of every layer",
        "softmax": "src/blas_kernels.cu:949; that the largest value is rounded to an integer first is left out",
        "connected_delta": "src/connected_layer.c:310",
        "direct_1x1": "src/convolutional_kernels.cu:116",
        "input_delta": "src/convolutional_kernels.cu:254, src/col2im_kernels.cu:40",
        "adam": "src/convolutional_kernels.cu update_convolutional_layer_gpu",
    }
)
ALEXEYAB_CUDA_SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "forward": "src/blas_kernels.cu:230",
        "direct_term": "src/blas_kernels.cu:248",
        "statistic_terms": "src/blas_kernels.cu:308,337",
        "summation": "src/blas_kernels.cu:80-142,286-339,545-607, BLOCK of src/dark_cuda.h:18",
        "moments": "src/blas_kernels.cu:569,605",
        "squares": "src/blas_kernels.cu:595",
        "normalize_variance": "src/blas_kernels.cu:605",
        "products": "src/blas_kernels.cu:248,337: 2. and -.5",
        "rolling_keep": "src/batchnorm_layer.c:331-334",
        "host_bias_gradient": "src/connected_layer.c:381-387",
        "eval_statistics": "src/batchnorm_layer.c:363-372",
        "leaky": "src/activation_kernels.cu leaky_activate_kernel, of every layer",
        "softmax": "src/blas_kernels.cu:1374; that the largest value is rounded to an integer first is left out",
        "connected_delta": "src/connected_layer.c:379",
        "shortcut_sums": "src/blas_kernels.cu:912-932",
        "direct_1x1": "src/convolutional_kernels.cu:580",
        "input_delta": "src/col2im_kernels.cu:111",
        "cleared": "src/network_kernels.cu:80",
    }
)
HANK_AI_CUDA_SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "forward": "src-lib/blas_kernels.cu:176",
        "direct_term": "src-lib/blas_kernels.cu:196",
        "statistic_terms": "src-lib/blas_kernels.cu:258,287",
        "summation": "src-lib/blas_kernels.cu:58-122,234-289,502-565, BLOCK of src-lib/dark_cuda.hpp:11",
        "moments": "src-lib/blas_kernels.cu:526,564",
        "squares": "src-lib/blas_kernels.cu:554",
        "normalize_variance": "src-lib/blas_kernels.cu:564",
        "products": "src-lib/blas_kernels.cu:196,287: 2. and -.5",
        "rolling_keep": "src-lib/batchnorm_layer.cpp:264-267",
        "host_bias_gradient": "src-lib/connected_layer.cpp:409-416",
        "eval_statistics": "src-lib/batchnorm_layer.cpp:298-307",
        "connected_delta": "src-lib/connected_layer.cpp:407",
        "shortcut_sums": "src-lib/blas_kernels.cu:923-943",
        "direct_1x1": "src-lib/convolutional_kernels.cu:415",
        "input_delta": "src-lib/col2im_kernels.cu:116",
    }
)
