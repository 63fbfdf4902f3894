package oracle;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import org.apache.paimon.Snapshot;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.serializer.InternalRowSerializer;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.manifest.ManifestCommittable;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.RowKeyExtractor;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.ScanMode;
import org.apache.paimon.table.source.Split;

/** The commits of one table written into another, by one writer that stays open: what that costs, for benchmarks. */
final class Replay {
    private Replay() {}

    /**
     * A commit for each snapshot of an append table with the columns of the target; each waits for its compaction. The
     * rows are in memory before the clock starts. full: before each commit, the one bucket is compacted in full.
     */
    static ObjectNode run(FileStoreTable source, FileStoreTable target, String user, boolean full) throws Exception {
        double wall = 0;
        double cpu = 0;
        long count = 0;
        ObjectNode last = null;
        try (IOManager io = new ScratchFiles(System.getProperty("java.io.tmpdir"));
                TableWriteImpl<?> write = target.newWrite(user);
                TableCommitImpl commit = target.newCommit(user)) {
            write.withIOManager(io);
            HashBucketAssigner assigner = assigner(target, user);
            RowKeyExtractor keys = target.createRowKeyExtractor();
            long latest = source.snapshotManager().latestSnapshotId();
            for (long id = source.snapshotManager().earliestSnapshotId(); id <= latest; id++) {
                List<BinaryRow> rows = rows(source, source.snapshotManager().snapshot(id));
                Stopwatch watch = new Stopwatch();
                for (BinaryRow row : rows) {
                    if (assigner == null) {
                        write.write(row);
                    } else {
                        keys.setRecord(row);
                        write.write(row, assigner.assign(keys.partition(), keys.trimmedPrimaryKey().hashCode()));
                    }
                }
                if (full) {
                    write.compact(BinaryRow.EMPTY_ROW, 0, true);
                }
                commit.commit(
                        new ManifestCommittable(id, null, write.prepareCommit(true, id), new LinkedHashMap<>()));
                if (assigner != null) {
                    assigner.prepareCommit(id);
                }
                last = watch.read();
                wall += last.get("wall_s").asDouble();
                cpu += last.get("cpu_s").asDouble();
                count += rows.size();
            }
        }
        if (last == null) {
            throw new IllegalArgumentException("the table to replay has no snapshots");
        }
        return last.put("wall_s", wall).put("cpu_s", cpu).put("rows", count);
    }

    /** Of dynamic buckets: one for the whole table, as one task of Flink's sink has it. Null: buckets are a function. */
    private static HashBucketAssigner assigner(FileStoreTable table, String user) {
        if (table.bucketMode() != BucketMode.HASH_DYNAMIC) {
            return null;
        }
        return new HashBucketAssigner(
                table.snapshotManager(),
                user,
                table.store().newIndexFileHandler(),
                1,
                1,
                0,
                table.coreOptions().dynamicBucketTargetRowNum(),
                table.coreOptions().dynamicBucketMaxBuckets());
    }

    private static List<BinaryRow> rows(FileStoreTable table, Snapshot snapshot) throws Exception {
        List<BinaryRow> rows = new ArrayList<>();
        InternalRowSerializer serializer = new InternalRowSerializer(table.rowType());
        ReadBuilder read = table.newReadBuilder();
        for (Split split :
                table.newSnapshotReader().withSnapshot(snapshot).withMode(ScanMode.DELTA).read().splits()) {
            try (RecordReader<InternalRow> reader = read.newRead().createReader(split)) {
                reader.forEachRemaining(row -> rows.add(serializer.toBinaryRow(row).copy()));
            }
        }
        return rows;
    }
}
