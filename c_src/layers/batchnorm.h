/* What the files of batch normalization share with each other alone. */
#ifndef DARKNETBN_LAYERS_BATCHNORM_H
#define DARKNETBN_LAYERS_BATCHNORM_H

#include "../internal.h"

/* Each becomes an array of c. */
status ensure_channels(layer *l, float **const *fields, size_t n_fields);
/* A caller may give a view of an array that the pass writes: such an input is copied to the output first. written: two arrays of n
 * floats and two of c. */
const float *readable(const float *input, size_t n, float *output, const float *const *written, size_t c);
/* Whether it lies in an array of the layer's own, of which it may be a caller's view */
int is_own(const layer *l, const float *output, size_t n);
/* x_norm as an array, where there is one to keep. */
status keep_x_norm(layer *l);
/* Whether a variance that a forward takes or keeps of n values in a channel is one over n - 1 = 0. */
int lacks_variance(const layer *l, size_t n, const network_state *state);
/* From the layer's delta into that of the layer before, which is overwritten: the forks' copy. */
status backward_standalone_batchnorm(layer *l, const network_state *state);
status update_standalone_batchnorm(layer *l, const update_options *o);

/* What an exchange made of the moments of a batch. */
typedef struct {
    size_t count;                  /* values in each channel, 0: there is no exchange, or one that only measures */
    float *mean, *variance, *kept; /* (c), written where there is a count */
} statistics_of_all;
/* Of p's input. */
status exchange_moments(layer *l, const batchnorm_pass *p, const network_state *state, statistics_of_all *all);
/* A backward in training behind a forward whose statistics were those of all. */
status exchange_deltas(const layer *l, const batchnorm_pass *p, const network_state *state);

#endif
