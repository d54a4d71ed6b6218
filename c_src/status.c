#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[256];

const char *status_message(void) {
    return message;
}

status fail(status code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return code;
}
