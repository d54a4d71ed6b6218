/* Trees of classes: a softmax over each group of sisters, and what the products along the branches say. */
#include "kernels.h"

#include <stddef.h>

/* output[i*stride] of all nodes: each group is a softmax of its own. input may be output.
 * Source: AlexeyAB softmax_layer.c softmax_tree. */
void softmax_tree_cpu(const float *input, const tree *t, float temperature, size_t stride, precision p, float *output) {
    for (size_t g = 0; g < t->groups; ++g) {
        const size_t first = t->group_offset[g] * stride;
        softmax_cpu(input + first, t->group_size[g], temperature, stride, p, output + first);
    }
}

/* predictions (n), in place: a node's own times that of its parent, which comes before it and is done. Source: tree.c, all forks. */
void hierarchy_predictions(float *predictions, const tree *t) {
    for (size_t i = 0; i < t->n; ++i)
        if (t->parent[i] >= 0) predictions[i] *= predictions[t->parent[i]];
}

/* From the first group down: the largest of a group, as long as the product of these is over thresh; else the parent that was
 * reached last, or without one the best of the first group. Source: tree.c, all forks. */
size_t hierarchy_top_prediction(const float *predictions, const tree *t, float thresh) {
    float product = 1;
    for (size_t group = 0;;) {
        float largest = 0;
        size_t best = t->group_offset[group];
        for (size_t i = t->group_offset[group]; i < t->group_offset[group] + t->group_size[group]; ++i)
            if (predictions[i] > largest) largest = predictions[i], best = i;
        if (!(product * largest > thresh)) return group == 0 ? best : (size_t)t->parent[t->group_offset[group]];
        product = product * largest;
        if (t->child[best] < 0) return best;
        group = (size_t)t->child[best];
    }
}

float hierarchy_probability(const float *predictions, const tree *t, int node, size_t stride) {
    float product = 1;
    for (; node >= 0; node = t->parent[node]) product = product * predictions[(size_t)node * stride];
    return product;
}
