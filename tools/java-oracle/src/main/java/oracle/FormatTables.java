package oracle;

import java.util.List;
import java.util.Map;

import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;

/** Writes tables that have no snapshots, by the interface of batch jobs. */
final class FormatTables {
    private FormatTables() {}

    /** overwrite: null adds rows; else the static partition whose rows they replace, empty for the partitions written to. */
    static void write(Table table, List<JsonNode> rows, Map<String, String> overwrite) throws Exception {
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        if (overwrite != null) {
            builder = overwrite.isEmpty() ? builder.withOverwrite() : builder.withOverwrite(overwrite);
        }
        try (BatchTableWrite write = builder.newWrite();
                BatchTableCommit commit = builder.newCommit()) {
            for (JsonNode row : rows) {
                write.write(Values.rowFromJson(row, table.rowType()));
            }
            commit.commit(write.prepareCommit());
        }
    }
}
