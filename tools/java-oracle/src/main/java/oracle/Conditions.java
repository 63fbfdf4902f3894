package oracle;

import java.util.ArrayList;
import java.util.List;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.types.RowType;

/** Conditions on rows from JSON: ["=", column, value], ["in", column, [values]], ["is null", column], ["and", ...]. */
final class Conditions {
    private Conditions() {}

    static Predicate fromJson(JsonNode n, RowType type) {
        String operator = n.get(0).asText();
        if (operator.equals("and") || operator.equals("or")) {
            List<Predicate> parts = new ArrayList<>();
            for (int i = 1; i < n.size(); i++) {
                parts.add(fromJson(n.get(i), type));
            }
            return operator.equals("and") ? PredicateBuilder.and(parts) : PredicateBuilder.or(parts);
        }
        PredicateBuilder builder = new PredicateBuilder(type);
        int column = builder.indexOf(n.get(1).asText());
        if (column < 0) {
            throw new IllegalArgumentException("unknown column " + n.get(1).asText());
        }
        switch (operator) {
            case "is null":
                return builder.isNull(column);
            case "is not null":
                return builder.isNotNull(column);
            case "in":
                return builder.in(column, literals(n.get(2), type, column));
            case "not in":
                return builder.notIn(column, literals(n.get(2), type, column));
            default:
        }
        Object value = Values.fromJson(n.get(2), type.getTypeAt(column));
        switch (operator) {
            case "=":
                return builder.equal(column, value);
            case "<>":
                return builder.notEqual(column, value);
            case "<":
                return builder.lessThan(column, value);
            case "<=":
                return builder.lessOrEqual(column, value);
            case ">":
                return builder.greaterThan(column, value);
            case ">=":
                return builder.greaterOrEqual(column, value);
            case "starts with":
                return builder.startsWith(column, value);
            default:
                throw new IllegalArgumentException("unknown operator " + operator);
        }
    }

    private static List<Object> literals(JsonNode values, RowType type, int column) {
        List<Object> found = new ArrayList<>();
        for (JsonNode value : values) {
            found.add(Values.fromJson(value, type.getTypeAt(column)));
        }
        return found;
    }
}
