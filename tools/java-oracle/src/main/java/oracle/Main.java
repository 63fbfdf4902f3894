package oracle;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.Table;

/** Command line. See README.md. */
public final class Main {
    private final List<String> args = new ArrayList<>();
    private final Map<String, String> flags = new LinkedHashMap<>();
    private final Map<String, String> options = new LinkedHashMap<>();
    private final PrintWriter out;

    private Main(PrintWriter out) {
        this.out = out;
    }

    public static void main(String[] argv) throws Exception {
        String zone = System.getenv("ORACLE_TZ");
        TimeZone.setDefault(TimeZone.getTimeZone(zone == null ? "UTC" : zone));
        PrintWriter out = new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8)));
        System.setOut(System.err); // what a library prints must not mix with the answers
        int code = 0;
        if (argv.length == 1 && argv[0].equals("serve")) {
            serve(out);
        } else {
            try {
                answer(argv, out);
            } catch (Throwable e) {
                System.err.println("oracle: " + Golden.message(e));
                code = exitCode(e);
            }
        }
        out.flush();
        System.exit(code); // Paimon's pools are not daemons.
    }

    /**
     * Answers requests until stdin ends. A request is a line with a JSON list: the arguments of one command. The answer is the
     * lines of that command, then one line that starts with a dot: `.ok`, or `.failed ` and a JSON object {code, message}.
     */
    private static void serve(PrintWriter out) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                answer(Values.MAPPER.readValue(line, String[].class), out);
                out.println(".ok");
            } catch (Throwable e) {
                ObjectNode failure = Values.object().put("code", exitCode(e)).put("message", Golden.message(e));
                out.println(".failed " + Values.MAPPER.writeValueAsString(failure));
            }
            out.flush();
        }
    }

    private static void answer(String[] argv, PrintWriter out) throws Exception {
        try {
            Main main = new Main(out);
            main.parse(argv);
            main.run();
        } catch (Throwable e) {
            if (System.getenv("ORACLE_TRACE") != null) {
                e.printStackTrace();
            }
            throw e;
        }
    }

    private static int exitCode(Throwable e) {
        return e instanceof IllegalArgumentException ? 2 : 1;
    }

    private void parse(String[] argv) {
        for (int i = 0; i < argv.length; i++) {
            String a = argv[i];
            if (!a.startsWith("--")) {
                args.add(a);
            } else if (Arrays.asList("--wait-compaction", "--full", "--no-wait", "--all", "--line", "--timed", "--count").contains(a)) {
                flags.put(a.substring(2), "true");
            } else if (i + 1 == argv.length) {
                throw new IllegalArgumentException(a + " needs a value");
            } else if (a.equals("--option")) {
                String[] kv = argv[++i].split("=", 2);
                options.put(kv[0], kv.length == 2 ? kv[1] : "");
            } else {
                flags.put(a.substring(2), argv[++i]);
            }
        }
    }

    private String arg(int i, String what) {
        if (i >= args.size()) {
            throw new IllegalArgumentException("missing argument: " + what);
        }
        return args.get(i);
    }

    private String flag(String name) {
        return flags.get(name);
    }

    private JsonNode json(String flag) throws Exception {
        String v = flag(flag);
        if (v == null) {
            throw new IllegalArgumentException("--" + flag + " FILE (or inline JSON) is required");
        }
        String text = v.startsWith("{") || v.startsWith("[")
                ? v
                : new String(Files.readAllBytes(Paths.get(v)), StandardCharsets.UTF_8);
        return Values.MAPPER.readTree(text);
    }

    private void print(JsonNode n) throws Exception {
        out.println(Values.MAPPER.writeValueAsString(n));
    }

    private void run() throws Exception {
        String command = arg(0, "command");
        if (command.equals("golden")) {
            golden();
            return;
        }
        if (command.equals("options")) {
            for (JsonNode option : Options.all()) {
                print(option);
            }
            return;
        }
        try (Lake lake = new Lake(arg(1, "WAREHOUSE"))) {
            Stopwatch watch = flags.containsKey("timed") ? new Stopwatch() : null;
            command(lake, command, arg(2, "db.table"));
            if (watch != null) {
                print(watch.read());
            }
        }
    }

    /** golden OUTDIR SCENARIOS.json...: each file holds one scenario or a list. */
    private void golden() throws Exception {
        int failed = 0;
        for (String file : args.subList(2, args.size())) {
            JsonNode n = Values.MAPPER.readTree(Files.readAllBytes(Paths.get(file)));
            for (JsonNode scenario : n.isArray() ? n : Values.array().add(n)) {
                String name = scenario.get("name").asText();
                if (flag("only") != null && !Arrays.asList(flag("only").split(",")).contains(name)) {
                    continue;
                }
                try {
                    Golden.make(scenario, Paths.get(arg(1, "OUTDIR")));
                    out.println("ok " + name);
                } catch (Throwable e) {
                    failed++;
                    out.println("FAILED " + name + ": " + Golden.message(e));
                    if (System.getenv("ORACLE_TRACE") != null) {
                        e.printStackTrace();
                    }
                }
                out.flush();
            }
        }
        if (failed > 0) {
            throw new IllegalStateException(failed + " scenarios failed");
        }
    }

    private Lake.WriteOptions writeOptions() {
        Lake.WriteOptions o = new Lake.WriteOptions();
        o.user = flags.getOrDefault("commit-user", "oracle");
        o.wait = flags.containsKey("wait-compaction");
        o.full = flags.containsKey("full");
        o.watermark = flag("watermark") == null ? null : Long.valueOf(flag("watermark"));
        o.dynamic = options;
        return o;
    }

    private long nextIdentifier(FileStoreTable t, String user) {
        if (flag("commit-id") != null) {
            return Long.parseLong(flag("commit-id"));
        }
        return t.snapshotManager().latestSnapshotOfUser(user).map(s -> s.commitIdentifier() + 1).orElse(1L);
    }

    private void command(Lake lake, String command, String name) throws Exception {
        switch (command) {
            case "read": {
                Table t = lake.at(name, flag("snapshot"), flag("tag"), flag("branch"), options);
                JsonNode where = flag("where") == null ? null : json("where");
                lake.read(t, where, (row, type) -> printUnchecked(Values.rowToObject(row, type)));
                return;
            }
            case "stream": {
                FileStoreTable t = (FileStoreTable) lake.at(name, null, null, flag("branch"), options);
                Long latest = t.snapshotManager().latestSnapshotId();
                long to = flag("to") != null ? Long.parseLong(flag("to")) : latest == null ? 0 : latest;
                long from = Long.parseLong(flags.getOrDefault("from", "1"));
                if (from <= to && !t.snapshotManager().snapshotExists(from) && !t.changelogManager().longLivedChangelogExists(from)) {
                    throw new IllegalArgumentException(
                            "snapshot " + from + " is not available, snapshots: "
                                    + t.snapshotManager().earliestSnapshotId() + ".." + latest
                                    + ", changelogs from: " + t.changelogManager().earliestLongLivedChangelogId());
                }
                lake.stream(t, from, to, false, (id, rows) -> rows.forEach(this::printUnchecked));
                return;
            }
            case "system": {
                String of = arg(3, "SYSTEMTABLE");
                Table t = lake.any(name.startsWith("sys.") ? name : name + "$" + of);
                if (!options.isEmpty()) {
                    t = t.copy(options);
                }
                if (flag("count") != null) { // every value is made, and none is handed over
                    long[] rows = {0};
                    lake.read(t, (row, type) -> rows[0] += Values.rowToObject(row, type).isEmpty() ? 0 : 1);
                    print(Values.object().put("rows", rows[0]));
                    return;
                }
                lake.read(t, (row, type) -> printUnchecked(Values.rowToObject(row, type)));
                return;
            }
            case "create":
                lake.create(name, json("ddl"));
                return;
            case "alter":
                lake.alter(name, json("change"));
                return;
            case "drop":
                lake.catalog.dropTable(Lake.id(name), false);
                return;
            case "rename":
                lake.catalog.renameTable(Lake.id(name), Lake.id(arg(3, "NEW")), false);
                return;
            case "repair":
                lake.catalog.repairTable(Lake.id(name));
                return;
            case "tables":
                for (String table : lake.catalog.listTables(Lake.id(name).getDatabaseName())) {
                    print(Values.object().put("table", table));
                }
                return;
            case "views":
                for (String view : lake.catalog.listViews(Lake.id(name).getDatabaseName())) {
                    print(Values.object().put("view", view));
                }
                return;
            case "view":
                print(lake.view(name));
                return;
            case "createView":
                lake.createView(name, json("ddl"));
                return;
            case "writeFormat": {
                List<JsonNode> rows = new ArrayList<>();
                for (String line : Files.readAllLines(Paths.get(flag("input")), StandardCharsets.UTF_8)) {
                    rows.add(Values.MAPPER.readTree(line));
                }
                FormatTables.write(
                        lake.any(name), rows, flag("overwrite") == null ? null : Lake.options(json("overwrite")));
                return;
            }
            case "write": {
                String target = flag("branch") == null ? name : Lake.branchName(name, flag("branch"));
                List<JsonNode> rows = new ArrayList<>();
                for (String line : Files.readAllLines(Paths.get(flag("input")), StandardCharsets.UTF_8)) {
                    if (!line.trim().isEmpty()) {
                        rows.add(Values.MAPPER.readTree(line));
                    }
                }
                int batches = Integer.parseInt(flags.getOrDefault("batches", "1"));
                Lake.WriteOptions o = writeOptions();
                o.id = nextIdentifier(lake.table(target), o.user);
                List<List<JsonNode>> parts = new ArrayList<>();
                List<Lake.WriteOptions> all = new ArrayList<>();
                for (int i = 0; i < batches; i++) {
                    int from = (int) ((long) rows.size() * i / batches);
                    int to = (int) ((long) rows.size() * (i + 1) / batches);
                    parts.add(rows.subList(from, to));
                    Lake.WriteOptions p = writeOptions();
                    p.id = o.id + i;
                    all.add(p);
                }
                lake.session(lake.table(target), parts, all);
                status(lake.table(target));
                return;
            }
            case "replay":
                print(Replay.run(
                        lake.table(arg(3, "SOURCE")),
                        lake.table(name).copy(options),
                        flags.getOrDefault("commit-user", "oracle"),
                        flags.containsKey("full")));
                return;
            case "compact": {
                FileStoreTable t = lake.table(name);
                Lake.WriteOptions o = writeOptions();
                o.id = nextIdentifier(t, o.user);
                lake.compact(t, o.full, o);
                status(lake.table(name));
                return;
            }
            case "delete": {
                Lake.WriteOptions o = writeOptions();
                o.id = nextIdentifier(lake.table(name), o.user);
                lake.deleteByVector(lake.table(name), json("where"), o);
                status(lake.table(name));
                return;
            }
            case "step":
                // Any step of a scenario: {"op": ...}.
                Golden.step(lake, name, json("json"), nextIdentifier(lake.table(name), "golden"));
                status(lake.table(name));
                return;
            case "tag":
                if (flag("snapshot") != null) {
                    lake.table(name).createTag(arg(3, "TAG"), Long.parseLong(flag("snapshot")));
                } else {
                    lake.table(name).createTag(arg(3, "TAG"));
                }
                return;
            case "branch":
                if (flag("tag") != null) {
                    lake.table(name).createBranch(arg(3, "BRANCH"), flag("tag"));
                } else {
                    lake.table(name).createBranch(arg(3, "BRANCH"));
                }
                return;
            case "expire": {
                ObjectNode c = Values.object();
                for (String[] p : new String[][] {
                    {"retain-max", "snapshotMax"}, {"retain-min", "snapshotMin"},
                    {"changelog-max", "changelogMax"}, {"changelog-min", "changelogMin"}
                }) {
                    if (flag(p[0]) != null) {
                        c.put(p[1], Integer.parseInt(flag(p[0])));
                    }
                }
                print(Values.object().put("expired", lake.expire(lake.table(name), c)));
                return;
            }
            case "rollback":
                if (flag("tag") != null) {
                    lake.table(name).rollbackTo(flag("tag"));
                } else {
                    lake.table(name).rollbackTo(Long.parseLong(flag("snapshot")));
                }
                status(lake.table(name));
                return;
            case "expected":
                if (flags.containsKey("line")) {
                    print(Golden.expected(lake, name));
                } else {
                    out.print(Golden.pretty(Golden.expected(lake, name)));
                }
                return;
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    private void status(FileStoreTable t) throws Exception {
        ObjectNode o = Values.object();
        o.put("snapshot", t.snapshotManager().latestSnapshotId());
        print(o);
    }

    private void printUnchecked(JsonNode n) {
        try {
            print(n);
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
