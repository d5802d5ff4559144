/*
 * A flat C interface over WiredTiger's structs of (partly variadic) function pointers, whose layout differs by version.
 * Rust sees opaque pointers, integers and `struct datum` only.
 *
 * Two promises make the Rust side sound:
 *   1. Arguments of the variadic calls are chosen by the cursor's own format, never by the caller's belief.
 *   2. WiredTiger keeps a pointer to the key and value that it was given. On return of each function here the cursor either
 *      stands on a record, with key and value in WiredTiger's memory, or it has neither: no caller's pointer stays behind.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>

/* A key or a value: bytes if the format is 'u', an integer if it is 'q'. */
struct datum {
    const void *data;
    size_t size;
    int64_t integer;
};

/* Implemented in message.rs and snappy.rs; none of them unwinds. */
extern void tipover_on_message(const void *log, int code, const char *text);
extern size_t tipover_snappy_bound(size_t size);
extern int tipover_snappy_compress(const uint8_t *from, size_t size, uint8_t *to, size_t room, size_t *written);
extern int tipover_snappy_decompress(const uint8_t *from, size_t size, uint8_t *to, size_t room, size_t *written);

/* Messages: WiredTiger hands back the handler it was given, so what is behind it can be found from there. */
struct handler {
    WT_EVENT_HANDLER events;
    const void *log;
};

static int
on_error(WT_EVENT_HANDLER *events, WT_SESSION *session, int code, const char *text)
{
    (void)session;
    tipover_on_message(((struct handler *)events)->log, code, text);
    return (0);
}

static int
on_message(WT_EVENT_HANDLER *events, WT_SESSION *session, const char *text)
{
    (void)session;
    tipover_on_message(((struct handler *)events)->log, 0, text);
    return (0);
}

const char *
tipover_error_text(int code)
{
    return (wiredtiger_strerror(code));
}

const char *
tipover_version(int *major, int *minor, int *patch)
{
    return (wiredtiger_version(major, minor, patch));
}

/* Opens a connection; `*handler_out` must be freed with `tipover_connection_close` or, on failure, is already free. */
int
tipover_connection_open(const char *home, const char *config, const void *log, WT_CONNECTION **connection_out,
  struct handler **handler_out)
{
    struct handler *handler;
    int ret;

    if ((handler = calloc(1, sizeof(*handler))) == NULL)
        return (ENOMEM);
    handler->events.handle_error = on_error;
    handler->events.handle_message = on_message;
    handler->log = log;
    if ((ret = wiredtiger_open(home, &handler->events, config, connection_out)) != 0) {
        free(handler);
        return (ret);
    }
    *handler_out = handler;
    return (0);
}

/* The connection is gone afterwards, whatever is returned. */
int
tipover_connection_close(WT_CONNECTION *connection, struct handler *handler, const char *config)
{
    int ret;

    ret = connection->close(connection, config);
    free(handler);
    return (ret);
}

int
tipover_connection_reconfigure(WT_CONNECTION *connection, const char *config)
{
    return (connection->reconfigure(connection, config));
}

int
tipover_session_open(WT_CONNECTION *connection, const char *config, WT_SESSION **session_out)
{
    return (connection->open_session(connection, NULL, config, session_out));
}

int
tipover_session_close(WT_SESSION *session)
{
    return (session->close(session, NULL));
}

int
tipover_create(WT_SESSION *session, const char *uri, const char *config)
{
    return (session->create(session, uri, config));
}

int
tipover_begin(WT_SESSION *session, const char *config)
{
    return (session->begin_transaction(session, config));
}

int
tipover_commit(WT_SESSION *session, const char *config)
{
    return (session->commit_transaction(session, config));
}

int
tipover_rollback(WT_SESSION *session)
{
    return (session->rollback_transaction(session, NULL));
}

int
tipover_checkpoint(WT_SESSION *session, const char *config)
{
    return (session->checkpoint(session, config));
}

int
tipover_log_flush(WT_SESSION *session, const char *config)
{
    return (session->log_flush(session, config));
}

int
tipover_cursor_open(WT_SESSION *session, const char *uri, const char *config, WT_CURSOR **cursor_out)
{
    return (session->open_cursor(session, uri, NULL, config, cursor_out));
}

int
tipover_cursor_close(WT_CURSOR *cursor)
{
    return (cursor->close(cursor));
}

int
tipover_cursor_reset(WT_CURSOR *cursor)
{
    return (cursor->reset(cursor));
}

const char *
tipover_key_format(const WT_CURSOR *cursor)
{
    return (cursor->key_format == NULL ? "" : cursor->key_format);
}

const char *
tipover_value_format(const WT_CURSOR *cursor)
{
    return (cursor->value_format == NULL ? "" : cursor->value_format);
}

static inline void
set_key(WT_CURSOR *cursor, const struct datum *key)
{
    WT_ITEM item;

    if (cursor->key_format[0] == 'q')
        cursor->set_key(cursor, key->integer);
    else {
        memset(&item, 0, sizeof(item));
        item.data = key->data;
        item.size = key->size;
        cursor->set_key(cursor, &item);
    }
}

static inline void
set_value(WT_CURSOR *cursor, const struct datum *value)
{
    WT_ITEM item;

    if (cursor->value_format[0] == 'q')
        cursor->set_value(cursor, value->integer);
    else {
        memset(&item, 0, sizeof(item));
        item.data = value->data;
        item.size = value->size;
        cursor->set_value(cursor, &item);
    }
}

/* Drops the caller's pointers after a failure, keeping the failure's code. */
static inline int
unless_failed(WT_CURSOR *cursor, int ret)
{
    if (ret != 0)
        (void)cursor->reset(cursor);
    return (ret);
}

int
tipover_key(WT_CURSOR *cursor, struct datum *key)
{
    WT_ITEM item;
    int ret;

    if (cursor->key_format[0] == 'q')
        return (cursor->get_key(cursor, &key->integer));
    if ((ret = cursor->get_key(cursor, &item)) != 0)
        return (ret);
    key->data = item.data;
    key->size = item.size;
    return (0);
}

int
tipover_value(WT_CURSOR *cursor, struct datum *value)
{
    WT_ITEM item;
    int ret;

    if (cursor->value_format[0] == 'q')
        return (cursor->get_value(cursor, &value->integer));
    if ((ret = cursor->get_value(cursor, &item)) != 0)
        return (ret);
    value->data = item.data;
    value->size = item.size;
    return (0);
}

int
tipover_search(WT_CURSOR *cursor, const struct datum *key)
{
    set_key(cursor, key);
    return (unless_failed(cursor, cursor->search(cursor)));
}

/* Search and value in one call, because it is the path that is measured. */
int
tipover_get(WT_CURSOR *cursor, const struct datum *key, struct datum *value)
{
    int ret;

    set_key(cursor, key);
    if ((ret = cursor->search(cursor)) == 0)
        ret = tipover_value(cursor, value);
    return (unless_failed(cursor, ret));
}

int
tipover_search_near(WT_CURSOR *cursor, const struct datum *key, int *exact)
{
    set_key(cursor, key);
    return (unless_failed(cursor, cursor->search_near(cursor, exact)));
}

int
tipover_next(WT_CURSOR *cursor)
{
    return (unless_failed(cursor, cursor->next(cursor)));
}

int
tipover_prev(WT_CURSOR *cursor)
{
    return (unless_failed(cursor, cursor->prev(cursor)));
}

/*
 * The flag is what "overwrite=" of WT_SESSION.open_cursor and WT_CURSOR.reconfigure sets; set here, one cursor can do all
 * four kinds of write without a configuration string being parsed for each.
 */
static inline void
set_overwrite(WT_CURSOR *cursor, int overwrite)
{
    if (overwrite)
        cursor->flags |= WT_CURSTD_OVERWRITE;
    else
        cursor->flags &= ~(uint64_t)WT_CURSTD_OVERWRITE;
}

/* Insert ends without key, value or position when it succeeds. */
int
tipover_insert(WT_CURSOR *cursor, const struct datum *key, const struct datum *value, int overwrite)
{
    set_overwrite(cursor, overwrite);
    set_key(cursor, key);
    set_value(cursor, value);
    return (unless_failed(cursor, cursor->insert(cursor)));
}

int
tipover_update(WT_CURSOR *cursor, const struct datum *key, const struct datum *value)
{
    int ret, reset;

    set_overwrite(cursor, 0);
    set_key(cursor, key);
    set_value(cursor, value);
    ret = cursor->update(cursor);
    reset = cursor->reset(cursor);
    return (ret != 0 ? ret : reset);
}

int
tipover_remove(WT_CURSOR *cursor, const struct datum *key)
{
    int ret, reset;

    set_overwrite(cursor, 0);
    set_key(cursor, key);
    ret = cursor->remove(cursor);
    reset = cursor->reset(cursor);
    return (ret != 0 ? ret : reset);
}

/* Statistics cursors: the key is an int, the value a description, a printable form and the number. */
int
tipover_statistic_next(WT_CURSOR *cursor, int *key, const char **description, int64_t *number)
{
    const char *printable;
    int ret;

    if ((ret = cursor->next(cursor)) != 0)
        return (ret);
    if ((ret = cursor->get_key(cursor, key)) != 0)
        return (ret);
    return (cursor->get_value(cursor, description, &printable, number));
}

/* Reset makes the cursor gather afresh; then each wanted number is an array look-up. */
int
tipover_statistics_read(WT_CURSOR *cursor, const int *keys, int64_t *numbers, size_t count)
{
    const char *description, *printable;
    size_t i;
    int ret;

    if ((ret = cursor->reset(cursor)) != 0)
        return (ret);
    for (i = 0; i < count; i++) {
        cursor->set_key(cursor, keys[i]);
        if ((ret = cursor->search(cursor)) != 0)
            return (ret);
        if ((ret = cursor->get_value(cursor, &description, &printable, &numbers[i])) != 0)
            return (ret);
    }
    return (0);
}

#ifndef TIPOVER_SYSTEM_WIREDTIGER
/* Builtin snappy in WiredTiger's own format: the compressed size in 8 bytes, little-endian, then raw snappy. */
#define PREFIX 8

static int
compress(WT_COMPRESSOR *compressor, WT_SESSION *session, uint8_t *from, size_t size, uint8_t *to, size_t room,
  size_t *written, int *failed)
{
    size_t bytes, i;

    (void)compressor;
    (void)session;
    bytes = 0;
    *failed = 1; /* Not an error: the block is then stored as it is. */
    if (room < PREFIX || tipover_snappy_compress(from, size, to + PREFIX, room - PREFIX, &bytes) != 0)
        return (0);
    if (bytes + PREFIX >= size)
        return (0);
    for (i = 0; i < PREFIX; i++)
        to[i] = (uint8_t)((uint64_t)bytes >> (8 * i));
    *written = bytes + PREFIX;
    *failed = 0;
    return (0);
}

static int
decompress(WT_COMPRESSOR *compressor, WT_SESSION *session, uint8_t *from, size_t size, uint8_t *to, size_t room,
  size_t *written)
{
    uint64_t bytes;
    size_t i;

    (void)compressor;
    (void)session;
    if (size < PREFIX)
        return (WT_ERROR);
    for (bytes = 0, i = 0; i < PREFIX; i++)
        bytes |= (uint64_t)from[i] << (8 * i);
    if (bytes > size - PREFIX)
        return (WT_ERROR);
    return (tipover_snappy_decompress(from + PREFIX, (size_t)bytes, to, room, written) == 0 ? 0 : WT_ERROR);
}

static int
bound(WT_COMPRESSOR *compressor, WT_SESSION *session, uint8_t *from, size_t size, size_t *result)
{
    (void)compressor;
    (void)session;
    (void)from;
    *result = tipover_snappy_bound(size) + PREFIX;
    return (0);
}

/* WiredTiger's builtin list calls this name from within wiredtiger_open. */
int
snappy_extension_init(WT_CONNECTION *connection, WT_CONFIG_ARG *config)
{
    static WT_COMPRESSOR snappy = {compress, decompress, bound, NULL};

    (void)config;
    return (connection->add_compressor(connection, "snappy", &snappy, NULL));
}
#endif
