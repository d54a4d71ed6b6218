/* The way of boxes back to the picture. Floats are floats and doubles doubles where the forks' sources have them so, since one
 * rounding more changes which box is kept. */
#include "../internal.h"

/* With a margin of (net - new)/2 on both sides, x = (x - margin/net) / (new/net) and w = w / (new/net), where the quotient in w
 * is a float net/new (UNBOX_DIVIDE_RATIO) or the inverse of new/net (UNBOX_MULTIPLY_INVERSE); the sum is a double in both. The
 * picture's and the network's sides are over 0.
 * Source: correct_yolo_boxes of yolo_layer.c, pjreddie and AlexeyAB. */
void correct_yolo_boxes(box *boxes, size_t n, int w, int h, int netw, int neth, int letter, int relative, unbox unbox) {
    int new_w = netw, new_h = neth;
    if (letter) {
        if ((float)netw / (float)w < (float)neth / (float)h)
            new_h = (int)((long long)h * netw / w);
        else
            new_w = (int)((long long)w * neth / h);
    }
    const double margin_x = (netw - new_w) / 2. / netw, margin_y = (neth - new_h) / 2. / neth;
    const float ratio_x = (float)new_w / (float)netw, ratio_y = (float)new_h / (float)neth;
    const int divide = unbox == UNBOX_DIVIDE_RATIO;
    const float factor_x = divide ? (float)netw / (float)new_w : 1 / ratio_x;
    const float factor_y = divide ? (float)neth / (float)new_h : 1 / ratio_y;
    for (size_t i = 0; i < n; ++i) {
        box *b = &boxes[i];
        b->x = (float)((b->x - margin_x) / ratio_x);
        b->y = (float)((b->y - margin_y) / ratio_y);
        b->w *= factor_x;
        b->h *= factor_y;
        if (relative) continue;
        b->x *= (float)w;
        b->w *= (float)w;
        b->y *= (float)h;
        b->h *= (float)h;
    }
}
