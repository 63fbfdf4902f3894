package oracle;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/** What a command costs: the whole process, with compiler and garbage collector. Older garbage goes before it starts. */
final class Stopwatch {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final long wall;
    private final long cpu;

    Stopwatch() {
        System.gc();
        wall = System.nanoTime();
        cpu = SYSTEM.getProcessCpuTime();
    }

    /** peak_mib: the most memory the process ever held, this command or an earlier one. 0 where the system doesn't tell. */
    ObjectNode read() throws Exception {
        ObjectNode found = Values.object();
        found.put("wall_s", (System.nanoTime() - wall) / 1e9);
        found.put("cpu_s", (SYSTEM.getProcessCpuTime() - cpu) / 1e9);
        return found.put("peak_mib", peakMib());
    }

    private static double peakMib() throws Exception {
        Path status = Paths.get("/proc/self/status");
        if (!Files.exists(status)) {
            return 0;
        }
        return Files.readAllLines(status).stream()
                .filter(line -> line.startsWith("VmHWM:"))
                .mapToLong(line -> Long.parseLong(line.replaceAll("[^0-9]", "")))
                .findFirst()
                .orElse(0) / 1024.0;
    }
}
