CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, city text);
CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint REFERENCES customers, amount numeric(12, 2), placed_at timestamptz DEFAULT now());
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO customers SELECT n, 'customer ' || n, (ARRAY['Lisbon', 'Oslo', 'Quito'])[1 + n % 3] FROM generate_series(1, 100) n;
INSERT INTO orders SELECT n, 1 + n % 100, n * 1.25 FROM generate_series(1, 1000) n;
