/* A layer's tree of classes, from the parent of each node. */
#include <limits.h>
#include <stdlib.h>

#include "../internal.h"
#include "../kernels/kernels.h"

void free_tree(tree *t) {
    if (!t) return;
    free(t->parent);
    free(t->child);
    free(t->group_offset);
    free(t->group_size);
    free(t->group);
    free(t);
}

static tree *make_tree(size_t n) {
    tree *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->n = n;
    t->parent = calloc(n, sizeof *t->parent);
    t->child = calloc(n, sizeof *t->child);
    t->group_offset = calloc(n, sizeof *t->group_offset);
    t->group_size = calloc(n, sizeof *t->group_size);
    t->group = calloc(n, sizeof *t->group);
    if (t->parent && t->child && t->group_offset && t->group_size && t->group) return t;
    free_tree(t);
    return NULL;
}

/* Neighbours of one parent are a group. Of two groups of one parent the later is its child. */
static void fill_tree(tree *t, const int *parent) {
    for (size_t i = 0; i < t->n; ++i) {
        if (i == 0 || parent[i] != parent[i - 1]) t->group_offset[t->groups++] = i;
        ++t->group_size[t->groups - 1];
        t->group[i] = t->groups - 1;
        t->parent[i] = parent[i];
        t->child[i] = -1;
        if (parent[i] >= 0) t->child[parent[i]] = (int)(t->groups - 1);
    }
}

status set_softmax_tree(layer *l, const int *parent, size_t n) {
    const size_t values = l->classes ? l->classes : l->inputs;
    if (n != values || n > INT_MAX) return fail(STATUS_SHAPE, "a tree of %zu nodes does not fit %zu values", n, values);
    for (size_t i = 0; i < n; ++i)
        if (parent[i] < -1 || (parent[i] >= 0 && (size_t)parent[i] >= i))
            return fail(STATUS_SHAPE, "node %zu has parent %d, which is no node before it", i, parent[i]);
    tree *t = make_tree(n);
    if (!t) return fail(STATUS_OUT_OF_MEMORY, "no memory for a tree of %zu nodes", n);
    fill_tree(t, parent);
    free_tree(l->softmax_tree);
    l->softmax_tree = t;
    return STATUS_OK;
}
