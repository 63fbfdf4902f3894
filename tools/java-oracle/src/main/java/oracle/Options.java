package oracle;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.annotation.Documentation;
import org.apache.paimon.options.ConfigOption;
import org.apache.paimon.options.FallbackKey;
import org.apache.paimon.options.MemorySize;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/** Every option that a class of Java Paimon declares, by reflection: nobody keeps this list by hand. */
final class Options {
    private static final String PACKAGE = "org/apache/paimon/";

    private Options() {}

    /** One object an option: class, field, key, fallbacks, type, words (of an enum), default (absent: none), immutable. */
    static List<ObjectNode> all() throws Exception {
        List<ObjectNode> found = new ArrayList<>();
        for (String name : classes()) {
            Class<?> holder;
            Field[] fields;
            try {
                holder = Class.forName(name);
                fields = holder.getDeclaredFields();
            } catch (NoClassDefFoundError e) { // engines that are not here
                continue;
            }
            for (Field field : fields) {
                if (Modifier.isStatic(field.getModifiers()) && field.getType() == ConfigOption.class) {
                    field.setAccessible(true);
                    ObjectNode option = describe((ConfigOption<?>) field.get(null));
                    option.put("class", holder.getSimpleName()).put("field", field.getName());
                    option.put("immutable", field.isAnnotationPresent(Documentation.Immutable.class));
                    found.add(option);
                }
            }
        }
        return found;
    }

    private static TreeSet<String> classes() throws Exception {
        String jar = CoreOptions.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        try (JarFile file = new JarFile(jar)) {
            return file.stream()
                    .map(entry -> entry.getName())
                    .filter(name -> name.startsWith(PACKAGE) && name.endsWith(".class"))
                    .filter(name -> !name.contains("/shade/") && !name.contains("$"))
                    .map(name -> name.substring(0, name.length() - 6))
                    .filter(name -> name.endsWith("Options") || name.endsWith("Factory") || name.endsWith("Loader")
                            || name.endsWith("Catalog") || name.endsWith("Config"))
                    .map(name -> name.replace('/', '.'))
                    .collect(Collectors.toCollection(TreeSet::new));
        }
    }

    private static ObjectNode describe(ConfigOption<?> option) throws Exception {
        ObjectNode node = Values.object().put("key", option.key());
        ArrayNode fallbacks = node.putArray("fallbacks");
        for (FallbackKey key : option.fallbackKeys()) {
            fallbacks.add(key.getKey());
        }
        Field type = ConfigOption.class.getDeclaredField("clazz");
        type.setAccessible(true);
        Class<?> kind = (Class<?>) type.get(option);
        node.put("type", kind.isEnum() ? "Enum" : kind.getSimpleName());
        if (kind.isEnum()) {
            ArrayNode words = node.putArray("words");
            for (Object word : kind.getEnumConstants()) {
                words.add(word.toString());
            }
        }
        Object value = option.defaultValue();
        if (value instanceof Duration) {
            node.put("default", ((Duration) value).toMillis() + " ms");
        } else if (value instanceof MemorySize) {
            node.put("default", ((MemorySize) value).getBytes() + " b");
        } else if (value != null) {
            node.put("default", value.toString());
        }
        return node;
    }
}
