import java.util.*;

public class Job {
    public static void main(String[] a) {
        Random r = new Random(5);
        HashMap<String, String[]> m = new HashMap<>();
        for (int i = 0; i < 1_000_000; i++)
            m.put("key" + i, new String[] {"value of " + r.nextInt(10000), "day " + (i % 365)});
        long h = 0;
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < 1_000_000; i++) {
                String[] v = m.get("key" + ((i * 7919L) % 1_000_000));
                h = h * 31 + v[0].hashCode() + v[1].length();
                if (i % 50 == k) v[1] = "changed " + k;
            }
            System.gc();
        }
        ArrayList<String> l = new ArrayList<>(m.keySet());
        Collections.sort(l);
        for (int i = 0; i < l.size(); i += 100) h = h * 33 + l.get(i).hashCode();
        try {
            Object o = null;
            o.hashCode();
        } catch (NullPointerException e) {
            h++;
        }
        System.out.println("java " + h + " " + m.size());
    }
}
