package oracle;

import java.io.UncheckedIOException;
import org.apache.paimon.disk.IOManagerImpl;

/**
 * Temporary files of one command. A writer that is closed cancels its compaction and doesn't wait for it, so a lookup
 * file may still appear in the folder while it is removed: the removal is repeated until the compaction has ended.
 */
final class ScratchFiles extends IOManagerImpl {
    private static final int ATTEMPTS = 100;
    private static final long WAIT_MILLIS = 50;

    ScratchFiles(String folder) {
        super(folder);
    }

    @Override
    public void close() throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                super.close();
                return;
            } catch (UncheckedIOException e) {
                if (attempt == ATTEMPTS) {
                    throw e;
                }
                Thread.sleep(WAIT_MILLIS);
            }
        }
    }
}
