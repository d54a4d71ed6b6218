/* Ends with 0 where a product is rounded before it is added to: (1 + e)^2 - (1 + 2e) is 0 then, e^2 with one rounding. */
int main(void) {
    volatile float one_and_a_bit = 1 + 0x1p-23F, minus = -(1 + 0x1p-22F);
    float a = one_and_a_bit, c = minus;
    return a * a + c == 0 ? 0 : 1;
}
